const counts = new Intl.NumberFormat('de', { maximumFractionDigits: 1 });

export const number = (n: number): string => counts.format(n);

/** `3 Knoten`, `1 Knoten`, `1.000 Anfragen`. */
export const some = (n: number, one: string, many: string): string => `${number(n)} ${n === 1 ? one : many}`;
