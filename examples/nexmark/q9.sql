-- Which bid wins each auction: the highest, of several the earliest?
--
-- As q4. Elsewhere it is the first row by ROW_NUMBER, and a better bid replaces it; here it is the first value in that
-- order, at every instant.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000)
  VALID FROM date_time UNTIL expires;

-- An auction is valid while it is open, a bid at its instant: they meet if the bid is made in time.
CREATE VIEW made AS
  SELECT a.id, a.category, a.seller, b.bidder, b.price, b.date_time
    FROM bid AS b JOIN auction AS a ON b.auction = a.id;

SELECT id, seller, MAX(price) AS price,
       FIRST(bidder ORDER BY price DESC, date_time) AS bidder,
       FIRST(date_time ORDER BY price DESC, date_time) AS date_time
  FROM made WINDOW(RANGE UNBOUNDED)
 GROUP BY id, seller;
