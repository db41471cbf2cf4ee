import { MODEL } from '../../test/slurm/laptop.ts';
import { NODE, OTELA_MAIN } from '../../test/support/where.ts';
import { ask, type Way } from './way.ts';

const OTELA = `${NODE} ${OTELA_MAIN}`;

export const OTELA_UP: Way = {
  name: 'otela up',
  once: [],
  each: ['otela up', 'curl'],
  end: ['otela down'],
  // The first run, which is not measured, installs the agent and makes the gateway's data.
  async prepare() {},
  script: () => `${OTELA} up ${MODEL} --host cluster --time 10 >"$HOME/up.txt" 2>&1 &
until access=$(grep -oE 'OPENAI_BASE_URL=[^ ]+ OPENAI_API_KEY=[^ ]+' "$HOME/up.txt"); do sleep 0.1; done
eval "$access"
${ask('$OPENAI_BASE_URL', '$OPENAI_API_KEY')}
${OTELA} down >/dev/null
wait
rm "$HOME/up.txt"`,
};
