/**
 * Charts that a browser draws completely: a point without a position breaks the line, and a single point is not a line.
 */
import { expect, it } from 'vitest';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';

const chart = (points: [number, number][], log?: 'x') =>
  chartsSvg([{ title: 't', x: 'x', y: 'y', series: [{ name: 's', points }], ...(log === undefined ? {} : { log }) }]);
const marks = (svg: string) => [...svg.matchAll(/text-anchor="middle">([^<]*)</g)].map(([, text]) => text);

it('what a logarithm has no place for stands at the edge', () => {
  const points = /points="([^"]*)"/.exec(chart([[0, 0.5], [1, 0.7], [100, 1]], 'x'))?.[1] ?? ''; // biome-ignore format: pairs
  expect(points).toMatch(/^(-?[\d.]+,-?[\d.]+ ?){3}$/);
  const [first, second] = points.split(' ').map((place) => Number(place.split(',')[0]));
  expect(first).toBe(second);
});

it('one point is a dot', () => {
  expect(chart([[3, 4]])).toMatch(/<circle cx="[\d.]+" cy="[\d.]+"/);
  expect(chart([[3, 4]], 'x')).toMatch(/<circle cx="[\d.]+" cy="[\d.]+"/);
});

it('a logarithmic axis of less than two decades is marked between its powers of ten', () => {
  const shown = (least: number, most: number) => marks(chart([[least, 0], [most, 1]], 'x')); // biome-ignore format: pairs
  expect(shown(3, 60)).toEqual(['5', '10', '20', '50']);
  expect(shown(0.01, 100)).toEqual(['0.01', '0.1', '1', '10', '100']);
});

it('more points are drawn than a call takes arguments', () => {
  const points = Array.from({ length: 300_000 }, (_, n): [number, number] => [n / 60, n % 9]);
  expect(chart(points)).toContain('points="64.0,');
});
