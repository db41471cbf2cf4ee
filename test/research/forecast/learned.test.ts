import { describe, expect, it } from 'vitest';
import { lengthErrors } from '../../../research/forecast/lengths.ts';
import { lstm } from '../../../research/forecast/lstm.ts';
import { mlp } from '../../../research/forecast/mlp.ts';
import { forecasterLaws } from '../../scheduler/forecast/laws.ts';

describe('learned methods of forecasting', () => {
  forecasterLaws([lstm({ window: 12, hidden: 8, epochs: 5 }), mlp({ window: 24, hidden: [16, 8], epochs: 8 })]);
});

describe('the length of an answer', () => {
  it('has an error that counts no request before its answer is there', () => {
    const same = Array.from({ length: 100 }, () => ({ input: 10, output: 1000 }));
    const { requests, withinTwo } = lengthErrors(same);
    expect(requests).toBe(100);
    // The first value cannot be forecast from anything.
    expect(withinTwo).toBeCloseTo(0.99, 5);
  });
});
