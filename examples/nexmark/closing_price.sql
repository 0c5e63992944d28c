-- What is the closing price of each auction, and who sold it?
--
-- The price is that of the highest bid, or the first price if there was none. As in the thesis, bids and opening prices
-- are kept for as long as an auction may last: two days there, 4 seconds here. The thesis also says how it gets simpler
-- with auctions that bring their intervals: see q6.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000)
  VALID FROM date_time UNTIL expires;
CREATE STREAM open_auction SOURCE nexmark('auction', events => 100000, rate => 1000);

-- When an auction closes it leaves the stream of open ones: an event at that instant.
CREATE VIEW closed AS DSTREAM(SELECT id, seller FROM auction);

CREATE VIEW current_price AS
  SELECT p.id, p.price, o.seller
    FROM (SELECT auction AS id, price FROM bid WINDOW(RANGE 4 SECONDS)
          UNION ALL
          SELECT id, initial_bid AS price FROM open_auction WINDOW(RANGE 4 SECONDS)) AS p,
         closed AS c,
         open_auction WINDOW(RANGE 4 SECONDS) AS o
   WHERE p.id = c.id AND c.id = o.id;

SELECT id, seller, MAX(price) AS price FROM current_price GROUP BY id, seller;
