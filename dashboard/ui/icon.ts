import { type ComponentType, createElement, type SVGProps } from 'react';

export type Icon = ComponentType<SVGProps<SVGSVGElement>>;

/** Lucide's style: 24 by 24, lines of width two, no fill. */
const DEFAULTS = {
  xmlns: 'http://www.w3.org/2000/svg',
  width: 24,
  height: 24,
  viewBox: '0 0 24 24',
  fill: 'none',
  stroke: 'currentColor',
  strokeWidth: 2,
  strokeLinecap: 'round',
  strokeLinejoin: 'round',
  // A screen reader reads the adjacent text or the button's label instead.
  'aria-hidden': true,
} as const;

/** Builds an icon from shapes, each with its element's name and attributes. */
export function icon(...shapes: readonly (readonly [string, Readonly<Record<string, string>>])[]): Icon {
  const drawn = shapes.map(([name, attributes], key) => createElement(name, { key, ...attributes }));
  return (props) => createElement('svg', { ...DEFAULTS, ...props }, drawn);
}
