import { useQuery } from '@tanstack/react-query';
import { gateway } from '../../api/client.ts';
import { bytes, count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Show } from '../../ui/feedback.tsx';
import { Meter } from '../../ui/meter.tsx';
import { Card, Section } from '../../ui/page.tsx';

const texts = t.batches.quota;
const REFETCH_MS = 20_000;

/** The remaining quota of files and batches. */
export function FileQuota() {
  const limits = useQuery({
    queryKey: ['files', 'room'],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/me/files', { signal });
      if (data === undefined) throw new Error(t.errors.unreadable);
      return data;
    },
    refetchInterval: REFETCH_MS,
  });
  return (
    <Section title={texts.title}>
      <Show of={limits}>
        {({ count: files, bytes: stored, open_batches: open }) => (
          <div className="grid gap-4 sm:grid-cols-3">
            <Amount label={texts.files} of={files} words={count} />
            <Amount label={texts.bytes} of={stored} words={bytes} />
            <Amount label={texts.open} of={open} words={count} />
          </div>
        )}
      </Show>
    </Section>
  );
}

interface AmountProps {
  label: string;
  of: { allowed: number; used: number };
  words: (n: number) => string;
}

function Amount({ label, of: { allowed, used }, words }: AmountProps) {
  return (
    <Card>
      <Meter
        label={label}
        value={used}
        max={allowed}
        text={texts.leftOf(words(Math.max(0, allowed - used)), words(allowed))}
      />
    </Card>
  );
}
