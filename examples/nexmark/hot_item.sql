-- Which items have the most bids of the last 10 seconds, at every instant?
--
-- The thesis looks at an hour.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

CREATE VIEW counts AS SELECT auction, COUNT(*) AS num FROM bid WINDOW(RANGE 10 SECONDS) GROUP BY auction;
SELECT auction, num FROM counts WHERE num >= ALL (SELECT num FROM counts);
