-- Which auctions have the most bids of the last 10 seconds, every 2 seconds?
--
-- Elsewhere each window is a row with its start and end; here an answer is valid until the window jumps again. LIMIT keeps
-- all that are level, as the benchmark wants.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, COUNT(*) AS num
  FROM bid WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS)
 GROUP BY auction
 ORDER BY num DESC LIMIT 1;
