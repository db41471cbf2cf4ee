import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from './engine-limits.ts';
import { drawLength, type LengthDistribution } from './length-distribution.ts';
import { seededRandom } from './random.ts';
import { SimulatedEngine } from './simulated-engine.ts';

/** A closed loop: each client has one request in progress, and sends its next request when the last one has ended. */
interface ClosedLoop {
  step: StepModel;
  limits: SimulatedEngineLimits;
  input: LengthDistribution;
  output: LengthDistribution;
  clients: number;
  /** Number of requests of each client; the first one does not count. */
  rounds: number;
  seed: number;
}

interface ClosedLoopResult {
  /** Mean seconds to the first token, over all requests. */
  ttftS: number;
  /** Mean seconds per token after the first, over responses with at least two tokens. */
  tpotS: number;
  /** Output tokens per second of all clients. */
  tokensPerS: number;
  refused: number;
}

/** Simulates the load of `vllm bench serve --max-concurrency` and similar tools. */
export function closedLoop({ step, limits, input, output, clients, rounds, seed }: ClosedLoop): ClosedLoopResult {
  const random = seededRandom(seed);
  const total = clients * rounds;
  const [arrivals, answers] = [new Float64Array(total), new Int32Array(total)];
  let [sent, answered, ttft, tpot, timed, tokens, refused, last] = [0, 0, 0, 0, 0, 0, 0, 0];
  let begun = Number.POSITIVE_INFINITY;
  const send = (at: number) => {
    if (sent >= total) return;
    const request = sent++;
    arrivals[request] = at;
    const answer = drawLength(output, random);
    // The first responses are cut at random lengths; otherwise clients that begin together would end together in each
    // round.
    answers[request] = request < clients ? 1 + Math.floor(random() * answer) : answer;
    replica.push(request, at, drawLength(input, random), answers[request] ?? 1);
  };
  const replica = new SimulatedEngine(step, limits, (request, first, end) => {
    const answer = answers[request] ?? 1;
    if (first === undefined) refused++;
    else if (request >= clients) {
      begun = Math.min(begun, arrivals[request] ?? 0);
      ttft += first - (arrivals[request] ?? 0);
      answered++;
      tokens += answer;
      if (answer > 1) {
        tpot += (end - first) / (answer - 1);
        timed++;
      }
    }
    last = Math.max(last, end);
    send(end);
  });
  for (let i = 0; i < clients; i++) send(0);
  replica.run(Number.POSITIVE_INFINITY);
  return {
    ttftS: ttft / Math.max(1, answered) + step.host.request_ms * 1e-3,
    tpotS: timed === 0 ? 0 : tpot / timed,
    tokensPerS: last > begun ? tokens / (last - begun) : 0,
    refused,
  };
}
