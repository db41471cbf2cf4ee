-- Lmod module of otela-agent. Copy it to MODULEPATH/otela-agent/0.1.0.lua, and set the two values.
local root = "/apps/otela-agent/0.1.0" -- has bin/otela-agent
local gateway = "https://gw.example.org"

help([[
otela-agent serves language models from the jobs of this cluster.

    otela-agent doctor
    otela-agent sbatch --model Qwen/Qwen3-8B > job.sh

Your join token belongs in ~/.otela-token, with mode 600.
]])
whatis("Name: otela-agent")
whatis("Version: 0.1.0")
whatis("Description: serves language models from jobs, through a gateway of OpenTela")
whatis("URL: https://github.com/opentela-ai/OpenTela")

prepend_path("PATH", pathJoin(root, "bin"))
setenv("OTELA_GATEWAY", gateway)
