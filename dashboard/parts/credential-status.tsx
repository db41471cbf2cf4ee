import { t } from '../texts/index.ts';
import { Tag } from '../ui/feedback.tsx';

interface Ending {
  expires_at: string | null;
  revoked_at: string | null;
}

const { status } = t.keys;

/** True if a key or a token is neither expired nor revoked. */
export function isGood({ expires_at, revoked_at }: Ending, now: number): boolean {
  return revoked_at === null && (expires_at === null || Date.parse(expires_at) > now);
}

export function CredentialStatus({ of, now, usedUp = false }: { of: Ending; now: number; usedUp?: boolean }) {
  if (of.revoked_at !== null) return <Tag kind="plain">{status.revoked}</Tag>;
  if (!isGood(of, now)) return <Tag kind="plain">{status.expired}</Tag>;
  return usedUp ? <Tag kind="plain">{status.usedUp}</Tag> : <Tag kind="good">{status.good}</Tag>;
}
