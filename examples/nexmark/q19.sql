-- Which are the ten highest bids of each auction?
--
-- Elsewhere ROW_NUMBER picks ten of those that are level. Here all that fewer than ten precede are there, so that the
-- answer does not depend on who came first.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

CREATE VIEW bids AS SELECT * FROM bid WINDOW(RANGE UNBOUNDED);
SELECT b.auction, b.bidder, b.price, b.date_time
  FROM bids AS b
  JOIN (SELECT auction, ARRAY_AGG(price ORDER BY price DESC)[10] AS tenth FROM bids GROUP BY auction) AS t
    ON b.auction = t.auction
 WHERE b.price >= coalesce(t.tenth, 0);
