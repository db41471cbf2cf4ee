/** A small factory.toml; tests change single lines of it. */
export const CONFIG = `factory = "pool"
gateway = "https://otela.example.org"
token_file = "token"
state = "state"

[clusters.alps]
launcher = "slurm"
max_jobs = 8
max_pending = 2

[[clusters.alps.pools]]
name = "normal"
gpu = "H100"
gpus_per_node = 4
gpus = 16
time = "04:00:00"

[[clusters.alps.pools]]
name = "old"
gpu = "V100"
gpus_per_node = 2
time = "08:00:00"

[recipes.llama]
weights = "meta-llama/Llama-3.1-8B-Instruct"
load = "2m"

[[recipes.llama.engines]]
gpu = ["H100", "GH200"]
gpus = 1
engine = "vllm"

[[recipes.llama.engines]]
gpu = ["V100"]
gpus = 2
engine = "lmdeploy"

[recipes.qwen]
weights = "Qwen/Qwen3-8B"

[[recipes.qwen.engines]]
gpu = ["H100"]
gpus = 2
engine = "sglang"

[models."meta-llama/Llama-3.1-8B-Instruct"]
recipe = "llama"
max = 4
idle = "10m"

[models."Qwen/Qwen3-8B"]
recipe = "qwen"
max = 2
idle = "5m"
priority = 5
wake = { projects = ["p1"] }
`;
