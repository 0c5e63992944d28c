-- How many bids has each auction per day, of which prices?
--
-- As q15.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, date_time::DATE AS day,
       COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
  FROM bid WINDOW(RANGE UNBOUNDED)
 GROUP BY auction, day;
