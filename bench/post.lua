-- wrk: POST one JSON body over and over; body and key come from the environment.
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer " .. (os.getenv("BENCH_KEY") or "none")
wrk.body = os.getenv("BENCH_BODY")
