const counts = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** `3 nodes`, `1 node`, `1,000 nodes`. */
export const some = (n: number, one: string, many = `${one}s`): string => `${counts.format(n)} ${n === 1 ? one : many}`;
