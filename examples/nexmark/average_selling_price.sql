-- What did the last ten items of each seller sell for, on average?
--
-- The thesis' closing price, then a partitioned window over rows. An item without a bid is not sold.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000)
  VALID FROM date_time UNTIL expires;

-- An auction is valid while it is open, a bid at its instant: they meet if the bid is made in time.
CREATE VIEW made AS
  SELECT a.id, a.category, a.seller, b.bidder, b.price, b.date_time
    FROM bid AS b JOIN auction AS a ON b.auction = a.id;

-- When an auction closes it leaves the stream of open ones: an event at that instant.
CREATE VIEW closed AS DSTREAM(SELECT id, seller FROM auction);

CREATE VIEW sold AS
  SELECT c.seller, c.id, MAX(m.price) AS final
    FROM closed AS c JOIN made WINDOW(RANGE 1 MINUTE) AS m ON c.id = m.id
   GROUP BY c.seller, c.id;

SELECT seller, AVG(final) AS price, COUNT(*) AS items FROM sold WINDOW(PARTITION BY seller ROWS 10) GROUP BY seller;
