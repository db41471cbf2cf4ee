import { describe, expect, it } from 'vitest';
import { serveGen } from '../../../research/papers/oserve/traces.ts';
import { ArrivalClassifier, judgeAtArrival, kindsAsJudged } from '../../../research/workload/arrival.ts';
import { drawServeGen, weibullShape } from '../../../research/workload/servegen.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { fitKinds, kindClassifier } from '../../../scheduler/workload/request-kinds.ts';
import { requestsOf } from '../../scheduler/workload/requests.ts';

describe('kinds of requests', () => {
  it('are judged at arrival from prompt and sender, and the misjudgement is told', () => {
    const kinds = fitKinds(requestsOf(1, [0.5, 0.3, 0.2]), { most: 8, seed: 1 });
    const classifier = new ArrivalClassifier(kinds);
    for (const { input, output } of requestsOf(5, [0.5, 0.3, 0.2])) {
      const request = { input, sender: output > 200 ? 'writer' : 'other' };
      classifier.ended(request, classifier.judge(request), output);
    }
    const { requests, wrong, confusion } = classifier.misjudgement;
    expect(requests).toBe(3000);
    expect(wrong).toBeLessThan(0.05);
    expect(confusion.flat().reduce((sum, n) => sum + n, 0)).toBe(3000);
  });

  it('are judged by the past, and by responses that have ended, but by no later one', () => {
    const kinds = fitKinds(requestsOf(1, [0.5, 0.3, 0.2]), { most: 8, seed: 1 });
    const arriving = (seed: number, shift = 0) =>
      requestsOf(seed, [0.5, 0.3, 0.2]).map(({ input, output }, i) => ({
        input,
        output: output + shift,
        sender: output > 200 ? 'writer' : 'other',
        arrivalS: i / 10,
      }));
    const now = arriving(5);
    const truth = Int32Array.from(now, kindClassifier(kinds));
    const wrong = (past: typeof now) =>
      judgeAtArrival(kinds, past, now).filter((kind, i) => kind !== truth[i]).length / now.length;
    expect(wrong(arriving(6))).toBeLessThan(0.05);
    // The first requests are judged before any response ended.
    expect(wrong([])).toBeGreaterThan(wrong(arriving(6)));
    const first = judgeAtArrival(kinds, [], now)[0];
    expect(judgeAtArrival(kinds, [], arriving(5, 400))[0]).toBe(first);
  });
});

describe('kinds as judged', () => {
  it('have the lengths of the requests that were judged so, and keep their names', () => {
    const all = requestsOf(1, [0.5, 0.3, 0.2]);
    const kinds = fitKinds(all, { most: 8, seed: 1 });
    const truth = Int32Array.from(all, kindClassifier(kinds));
    const same = kindsAsJudged(kinds, all, truth);
    for (const [j, kind] of same.entries()) {
      expect(kind.moments.output.mean).toBeCloseTo(kinds[j]?.moments.output.mean ?? 0, 6);
      expect(kind.share).toBeCloseTo(kinds[j]?.share ?? 0, 9);
    }
    // A judge that cannot distinguish them: every kind has the same lengths, and one has no requests.
    const blind = kindsAsJudged(
      kinds,
      all,
      truth.map((_, i) => i % 2),
    );
    expect(blind.map(({ name }) => name)).toEqual(kinds.map(({ name }) => name));
    expect((blind[0]?.moments.output.mean ?? 0) / (blind[1]?.moments.output.mean ?? 1)).toBeCloseTo(1, 0);
    expect(blind[2]).toEqual({ ...kinds[2], share: 0 });
  });
});

describe("ServeGen's clients", () => {
  const hour = { fromS: 5 * 86_400, toS: 5 * 86_400 + 3600, inputMax: 2000, outputMax: 500, seed: 1 };

  it('send the rate that is published of them', () => {
    const trace = serveGen('m-mid');
    const share = 0.02;
    const { requests } = drawServeGen(trace, { ...hour, share });
    const known = new Set(trace.lengths.map((one) => `${one.client}:${one.period}`));
    const published = trace.windows
      .filter(
        (one) => one.window >= 720 && one.window < 726 && known.has(`${one.client}:${Math.floor(one.window / 36)}`),
      )
      .reduce((sum, one) => sum + one.rate * 600 * share, 0);
    expect(requests.count / published).toBeGreaterThan(0.93);
    expect(requests.count / published).toBeLessThan(1.07);
  });

  it('are drawn alike with the same seed, and otherwise with another', () => {
    const draw = (seed: number) =>
      drawServeGen(serveGen('m-mid'), { ...hour, toS: hour.fromS + 600, share: 0.005, seed });
    expect(draw(3).requests.arrival).toEqual(draw(3).requests.arrival);
    expect(draw(3).requests.arrival).not.toEqual(draw(4).requests.arrival);
  });

  it('have minutes that differ: no rate is interpolated', () => {
    const { requests } = drawServeGen(serveGen('m-mid'), { ...hour, share: 0.02 });
    const minutes = new Array<number>(60).fill(0);
    for (const at of requests.arrival) minutes[Math.floor(at / 60)] = (minutes[Math.floor(at / 60)] ?? 0) + 1;
    const mean = minutes.reduce((sum, n) => sum + n, 0) / 60;
    const variance = minutes.reduce((sum, n) => sum + (n - mean) ** 2, 0) / 60;
    // Poisson counts of a smooth rate would have a variance of about their mean.
    expect(variance / mean).toBeGreaterThan(2);
  });

  it('have gaps of the coefficient of variation that is asked for', () => {
    const random = seededRandom(8);
    const shape = weibullShape(3);
    const values = Array.from({ length: 200_000 }, () => (-Math.log(1 - random())) ** (1 / shape));
    const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
    const variance = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length;
    expect(Math.sqrt(variance) / mean).toBeGreaterThan(2.7);
    expect(Math.sqrt(variance) / mean).toBeLessThan(3.3);
  });
});
