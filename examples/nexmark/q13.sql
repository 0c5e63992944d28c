-- What does a fixed table say of each bid?
--
-- A bid lasts for an instant, so the table is looked up when a bid comes, and nothing is kept of the bids. One that is
-- changed while the query runs would be declared in the same way. Such a table usually comes from file().
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

-- The numbers from 0 to 9999, each with itself as its value.
CREATE TABLE digits (d BIGINT);
INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
CREATE TABLE side_input AS
  SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS value FROM digits a, digits b, digits c, digits e;

SELECT b.auction, b.bidder, b.price, b.date_time, s.value
  FROM bid AS b JOIN side_input AS s ON b.auction % 10000 = s.value;
