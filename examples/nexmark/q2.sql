-- Which bids are on some chosen auctions?
--
-- Same as elsewhere.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, price FROM bid WHERE auction % 123 = 0;
