/** The output of a command. */
export interface Output {
  print(line: string): void;
  complain(line: string): void;
}
