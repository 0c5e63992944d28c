-- How many bids has each user made in 10 seconds of the clock on the wall?
--
-- A stream without ORDERED BY goes by the time of arrival, as the benchmark wants here. So the answer depends on when it
-- is asked; the batches of one run and their times are remembered, and a restarted run sees the same.
CREATE STREAM bid (bidder BIGINT) SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT bidder, COUNT(*) AS bids FROM bid WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) GROUP BY bidder;
