#!/bin/bash
# vLLM behind otela-agent, as a job of Flux.
#   OTELA_GATEWAY=https://gw.example.org MODEL=Qwen/Qwen3-8B flux submit --job-name=otela-vllm --cores=8 --gpus-per-task=1 \
#     --time-limit=12h --output=otela-vllm-{{id}}.log ./vllm-flux.sh
set -euo pipefail

: "${OTELA_GATEWAY:?the address of the gateway, e.g. https://gw.example.org}"
: "${OTELA_TOKEN_FILE:=$HOME/.otela-token}"
: "${MODEL:=Qwen/Qwen3-8B}"
: "${GPUS:=1}"
export OTELA_GATEWAY OTELA_TOKEN_FILE

# Several jobs of this kind may share a node: each has its own port. The id of a Flux job is no number.
port=$((20000 + $(printf %s "$FLUX_JOB_ID" | cksum | cut -d" " -f1) % 10000))

# Other users of the node can reach loopback as well; without this key the engine answers them with 401.
VLLM_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export VLLM_API_KEY OTELA_ENGINE_KEY="$VLLM_API_KEY"

# Where vLLM is installed, for example:
# source "$HOME/venvs/vllm/bin/activate"

# exec: the agent takes the place of this shell and so hears the signals itself. It asks Flux when the job ends.
exec otela-agent start --drain-before 120s -- \
  vllm serve "$MODEL" --host 127.0.0.1 --port "$port" --tensor-parallel-size "$GPUS" "$@"
