-- Departures from the three airports of New York City around the blizzard of 8 and 9 February 2013, with the weather
-- that was reported every hour.
--
-- Question 1: what share of the departures of the last three hours was cancelled, at each airport?
-- Question 2: how late are planes that leave in poor sight? Each departure meets the last report of its airport: a
-- window by rows, one row for each airport.

CREATE STREAM flights (
    event_time TIMESTAMP, cancelled BOOLEAN, dep_delay_min INT, carrier VARCHAR, flight INT, origin VARCHAR, dest VARCHAR)
  SOURCE file('examples/flights/flights.parquet') ORDERED BY event_time;

CREATE STREAM weather (
    event_time TIMESTAMP, origin VARCHAR, temp_f DOUBLE, wind_speed_mph DOUBLE, precip_in DOUBLE, visibility_mi DOUBLE)
  SOURCE file('examples/flights/weather.parquet') ORDERED BY event_time;

CREATE STREAM cancelled AS
  SELECT origin, 100.0 * COUNT(*) FILTER (WHERE cancelled) / COUNT(*) AS percent
    FROM flights WINDOW(RANGE 3 HOURS)
   GROUP BY origin;

CREATE STREAM departures AS
  SELECT f.origin, f.dep_delay_min, CASE WHEN w.visibility_mi < 3 THEN 'poor' ELSE 'good' END AS sight
    FROM flights f JOIN weather WINDOW(PARTITION BY origin ROWS 1) w ON f.origin = w.origin
   WHERE NOT f.cancelled;

CREATE STREAM lateness AS
  SELECT sight, AVG(dep_delay_min) AS minutes, COUNT(*) AS departures
    FROM departures WINDOW(RANGE 6 HOURS)
   GROUP BY sight;
