-- Pass all bids through: what does it cost to read and write, and nothing else?
--
-- Same as elsewhere.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, price, date_time, extra FROM bid;
