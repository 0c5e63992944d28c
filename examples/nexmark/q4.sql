-- What is the average of the winning prices, per category?
--
-- Elsewhere bids and auctions are joined without bound, with the times compared in the condition. Here auctions bring
-- their intervals, so an auction is forgotten when it closes. An interval does not contain its end: a bid at the very
-- instant of closing is too late, where BETWEEN lets it in. The answer at an instant counts open auctions with their
-- highest bid so far, as elsewhere.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000)
  VALID FROM date_time UNTIL expires;

-- An auction is valid while it is open, a bid at its instant: they meet if the bid is made in time.
CREATE VIEW made AS
  SELECT a.id, a.category, a.seller, b.bidder, b.price, b.date_time
    FROM bid AS b JOIN auction AS a ON b.auction = a.id;

SELECT category, AVG(final) AS price
  FROM (SELECT id, category, MAX(price) AS final FROM made WINDOW(RANGE UNBOUNDED) GROUP BY id, category) AS winning
 GROUP BY category;
