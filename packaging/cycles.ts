/** Groups of files that import each other, directly or through others. */
export function cyclesOf(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const index = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (file: string): number => {
    const own = index.size;
    index.set(file, own);
    let least = own;
    stack.push(file);
    for (const to of imports.get(file) ?? []) {
      if (!index.has(to)) least = Math.min(least, visit(to));
      else if (stack.includes(to)) least = Math.min(least, index.get(to) ?? own);
    }
    if (least === own) {
      const group = stack.splice(stack.indexOf(file));
      if (group.length > 1) cycles.push(group);
    }
    return least;
  };
  for (const file of imports.keys()) if (!index.has(file)) visit(file);
  return cycles;
}
