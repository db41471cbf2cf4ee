/** The script that users write: sbatch, squeue, ssh -L. It asks every two seconds. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ask, forwarded, type Way } from './way.ts';

export const USUAL_SCRIPT: Way = {
  name: 'usual script',
  once: ['write job.sh'],
  each: ['sbatch', 'squeue, until the job runs', 'scontrol show node', 'ssh -L', 'curl, until the engine answers'],
  end: ['scancel', 'kill ssh'],
  async prepare({ laptop }) {
    const job = '#!/bin/bash\n#SBATCH --gpus-per-node=1\n#SBATCH --time=10\nexec vllm --host 0.0.0.0 --port $1\n';
    await writeFile(join(laptop.home, 'job.sh'), job);
  },
  script: (port) => `ssh cluster 'cat >job.sh' <"$HOME/job.sh"
job=$(ssh cluster sbatch --parsable job.sh ${port + 1})
until node=$(ssh cluster squeue -h -t R -j $job -o %N) && [ -n "$node" ]; do sleep 2; done
address=$(ssh cluster scontrol show node -o $node | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
ssh -N -L ${port}:$address:${port + 1} cluster &
${forwarded(port, 2)}
${ask(`http://127.0.0.1:${port}/v1`)}
ssh cluster scancel $job
kill %1`,
};
