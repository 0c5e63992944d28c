-- Which are the highest bids of the last 10 seconds, at every instant?
--
-- The thesis looks at 10 minutes.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, price
  FROM bid WINDOW(RANGE 10 SECONDS)
 WHERE price = (SELECT MAX(price) FROM bid WINDOW(RANGE 10 SECONDS));
