-- Two hours of connections between a laboratory and the rest of the Internet, January 1994.
--
-- Question 1: how many connections of each service are open, at every instant? A record says when its connection began
-- and when it ended, so it is valid for just that time, and counting what is valid is counting what is open.
-- Question 2: which outside hosts keep knocking in vain? At least five attempts within five minutes that were refused or
-- not answered.

CREATE STREAM connections (
    event_time TIMESTAMP, end_time TIMESTAMP, protocol VARCHAR, orig_bytes BIGINT, resp_bytes BIGINT,
    local_host INT, remote_host INT, state VARCHAR, local_originated BOOLEAN)
  SOURCE file('examples/network/connections.parquet') VALID FROM event_time UNTIL end_time;

CREATE STREAM open_connections AS
  SELECT protocol, COUNT(*) AS connections
    FROM connections
   WHERE end_time IS NOT NULL AND protocol IN ('smtp', 'telnet', 'www')
   GROUP BY protocol;

CREATE STREAM attempts (
    event_time TIMESTAMP, protocol VARCHAR, local_host INT, remote_host INT, state VARCHAR, local_originated BOOLEAN)
  SOURCE file('examples/network/connections.parquet') ORDERED BY event_time;

CREATE STREAM knocking AS
  SELECT remote_host, COUNT(*) AS attempts, COUNT(DISTINCT local_host) AS doors
    FROM attempts WINDOW(RANGE 5 MINUTES)
   WHERE state IN ('S0', 'REJ') AND NOT local_originated
   GROUP BY remote_host
  HAVING COUNT(*) >= 5;
