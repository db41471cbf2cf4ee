-- wrk: POST one JSON body over and over; body, key and further headers (`name: value` lines) come from the environment.
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer " .. (os.getenv("BENCH_KEY") or "none")
for name, value in (os.getenv("BENCH_HEADERS") or ""):gmatch("([^:\n]+): ([^\n]+)") do
  wrk.headers[name] = value
end
wrk.body = os.getenv("BENCH_BODY")
