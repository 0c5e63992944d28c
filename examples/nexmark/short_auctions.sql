-- Which auctions closed within a second of their opening?
--
-- The thesis asks for 5 hours, of auctions that may last two days; here they last up to 3.4 seconds.
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000)
  VALID FROM date_time UNTIL expires;
CREATE STREAM open_auction SOURCE nexmark('auction', events => 100000, rate => 1000);

-- When an auction closes it leaves the stream of open ones: an event at that instant.
CREATE VIEW closed AS DSTREAM(SELECT id, seller FROM auction);

SELECT o.id, o.item_name, o.seller, o.date_time, o.expires
  FROM open_auction WINDOW(RANGE 1 SECOND) AS o, closed AS c
 WHERE o.id = c.id;
