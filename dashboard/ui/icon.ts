import { type ComponentType, createElement, type SVGProps } from 'react';

export type Icon = ComponentType<SVGProps<SVGSVGElement>>;

/** As Lucide draws: 24 by 24, lines of two, no fill. */
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
  // A reader of screens gets what the text beside it or the button's label says.
  'aria-hidden': true,
} as const;

/** An icon of some shapes: the element's name, then its attributes. */
export function icon(...shapes: readonly (readonly [string, Readonly<Record<string, string>>])[]): Icon {
  const drawn = shapes.map(([name, attributes], key) => createElement(name, { key, ...attributes }));
  return (props) => createElement('svg', { ...DEFAULTS, ...props }, drawn);
}
