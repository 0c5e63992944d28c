-- How many bids has each user made in a session, where 10 seconds without a bid end it?
--
-- Elsewhere a session is a row when it is over. Here the answer at an instant is about the sessions that go on then; the
-- last piece of each is what others report.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT bidder, COUNT(*) AS bids, MIN(date_time) AS first_bid, MAX(date_time) AS last_bid
  FROM bid WINDOW(PARTITION BY bidder SESSION 10 SECONDS)
 GROUP BY bidder;
