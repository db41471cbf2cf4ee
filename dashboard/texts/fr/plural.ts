const counts = new Intl.NumberFormat('fr', { maximumFractionDigits: 1 });

export const number = (n: number): string => counts.format(n);

/** `3 nœuds`, `1 nœud`. In French, 0 and 1.5 are singular, too. */
export const some = (n: number, one: string, many = `${one}s`): string =>
  `${number(n)} ${Math.abs(n) < 2 ? one : many}`;
