/** Where a command writes. */
export interface Output {
  print(line: string): void;
  complain(line: string): void;
}
