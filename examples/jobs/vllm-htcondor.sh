#!/bin/bash
# vLLM behind otela-agent, as a job of HTCondor.
#   condor_submit vllm-htcondor.sub
set -euo pipefail

: "${OTELA_GATEWAY:?the address of the gateway, e.g. https://gw.example.org}"
: "${OTELA_TOKEN_FILE:=$HOME/.otela-token}"
: "${MODEL:=Qwen/Qwen3-8B}"
: "${GPUS:=1}"
export OTELA_GATEWAY OTELA_TOKEN_FILE

# Several jobs of this kind may share a node: each has its own port. The number of the job stands in its ad.
port=$((20000 + $(sed -n 's/^ClusterId = //p' "$_CONDOR_JOB_AD") % 10000))

# Other users of the node can reach loopback as well; without this key the engine answers them with 401.
VLLM_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export VLLM_API_KEY OTELA_ENGINE_KEY="$VLLM_API_KEY"

# Where vLLM is installed, for example:
# source "$HOME/venvs/vllm/bin/activate"

# exec: the agent takes the place of this shell and so hears the signals itself. The job's ad tells it when the job ends.
exec otela-agent start --drain-before 120s -- \
  vllm serve "$MODEL" --host 127.0.0.1 --port "$port" --tensor-parallel-size "$GPUS" "$@"
