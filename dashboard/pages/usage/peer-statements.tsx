import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { basePath } from '../../api/base-path.ts';
import { gateway } from '../../api/client.ts';
import { t } from '../../texts/index.ts';
import { buttonClass } from '../../ui/button.tsx';
import { Download } from '../../ui/icons.ts';
import { Section } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';

const texts = t.usage.statements;

/** Signed statements of a month with each peer institution, as files. Nothing is shown if there is no peer. */
export function PeerStatements() {
  const peers = useQuery({
    queryKey: ['peers'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/peers', { signal })).data?.data ?? [],
  });
  const [month, setMonth] = useState<'this' | 'last'>('this');
  if (peers.data === undefined || peers.data.length === 0) return null;
  const wanted = monthOf(new Date(), month === 'this' ? 0 : -1);
  return (
    <Section
      title={texts.title}
      actions={
        <Segments
          label={texts.month}
          value={month}
          options={[
            { value: 'last', label: monthOf(new Date(), -1) },
            { value: 'this', label: monthOf(new Date(), 0) },
          ]}
          choose={setMonth}
        />
      }
    >
      <p className="text-muted">{texts.about}</p>
      <ul className="flex flex-col gap-2">
        {peers.data.map(({ name }) => (
          <li key={name} className="flex flex-wrap items-center gap-2">
            <span className="min-w-32 font-medium">{name}</span>
            {(['served', 'used'] as const).map((side) => (
              <a
                key={side}
                href={statementPath(name, wanted, side)}
                download={`${name}-${side}-${wanted}.ndjson`}
                className={buttonClass()}
              >
                <Download className="size-4" aria-hidden />
                {texts[side](name)}
              </a>
            ))}
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** The signed statement of a month with a peer institution. @param month such as `2026-11` */
const statementPath = (peer: string, month: string, side: 'served' | 'used') =>
  `${basePath}/admin/peers/${encodeURIComponent(peer)}/statement?month=${month}&side=${side}`;

/** A month as the gateway names it, UTC. */
function monthOf(today: Date, later: number): string {
  return new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + later, 1)).toISOString().slice(0, 7);
}
