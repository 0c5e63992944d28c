-- Which bids are on auctions of category 10, and what is for sale there?
--
-- As q3: new rows of an answer that only grows. A bid may come before its auction.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000);

ISTREAM(
  SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time,
         a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category
    FROM bid WINDOW(RANGE UNBOUNDED) AS b
    JOIN auction WINDOW(RANGE UNBOUNDED) AS a ON b.auction = a.id
   WHERE a.category = 10
);
