-- What are the bids of the highest price, every 10 seconds?
--
-- As q5: the answer about a window is valid until the window jumps again.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, price, bidder, date_time
  FROM bid WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)
 ORDER BY price DESC LIMIT 1;
