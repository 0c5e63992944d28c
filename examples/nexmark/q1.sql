-- What are the prices of bids in euro?
--
-- Same as elsewhere. 0.908 is a DECIMAL here, so the product is exact.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;
