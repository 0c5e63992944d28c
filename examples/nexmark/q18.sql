-- What is the last bid of each bidder on each auction?
--
-- Elsewhere it is the first row by ROW_NUMBER with the latest time on top. Here it is the window over one row of each
-- partition; a bid leaves it when the next one comes.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, price, channel, url, date_time, extra
  FROM bid WINDOW(PARTITION BY bidder, auction ROWS 1);
