-- Who puts something up for sale within 12 seconds of registering?
--
-- The thesis looks at 12 hours, and makes a stream of a table of people by ISTREAM; here they come as a stream.
CREATE STREAM person SOURCE nexmark('person', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000);

SELECT DISTINCT p.id, p.name
  FROM person WINDOW(RANGE 12 SECONDS) AS p, auction AS o
 WHERE p.id = o.seller;
