-- Which are the ten highest bids of each auction?
--
-- Elsewhere ROW_NUMBER picks ten of those that are level. Here all that fewer than ten precede are there, so that the
-- answer does not depend on who came first.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, price, date_time
  FROM (SELECT *, RANK() OVER (PARTITION BY auction ORDER BY price DESC) AS place
          FROM bid WINDOW(RANGE UNBOUNDED)) AS ranked
 WHERE place <= 10;
