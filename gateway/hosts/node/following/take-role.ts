/** What `serve --follow` says, and what DATA/role.json says. The file is newer where a promotion came after the flag. */
import { CommandError } from '../../../command.ts';
import { readRole, writeRole } from './role.ts';

/** @throws CommandError where the two contradict each other */
export function takeRole(data: string, follow: string | undefined): void {
  const role = readRole(data);
  if (follow === undefined) {
    // A first that was superseded says so by its file; the flag need not be added for it.
    return;
  }
  if (role.role === 'first' && role.epoch === 0) return writeRole(data, { role: 'follower', epoch: 0, follow });
  if (role.role === 'first')
    throw new CommandError(
      `This gateway was promoted to be the first, epoch ${role.epoch}: start it without --follow.`,
    );
  if (role.follow === follow || role.epoch > 0) return;
  writeRole(data, { ...role, follow });
}
