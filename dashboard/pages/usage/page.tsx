import { useState } from 'react';
import type { Me } from '../../api/schemas.ts';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Page } from '../../ui/page.tsx';
import { Segments } from '../../ui/segmented-control.tsx';
import { Cost } from './cost.tsx';
import { LastRequests } from './last-requests.tsx';
import { PeerStatements } from './peer-statements.tsx';
import { Quota } from './quota.tsx';
import { OverTime } from './usage-over-time.tsx';
import { RANGES, type Range } from './usage-query.ts';
import { Totals } from './usage-totals.tsx';

const texts = t.usage;

type Whose = 'mine' | 'everybody';

export default function UsagePage() {
  const me = useMe();
  const [range, setRange] = useState<Range>('month');
  const [whose, setWhose] = useState<Whose>('mine');
  // To a provider the gateway reports what its nodes served, not its own usage by day.
  const served = me.role === 'provider';
  const isMine = whose === 'mine';
  return (
    <Page
      title={t.pages.usage}
      about={served ? texts.aboutServed : isMine ? texts.about : texts.aboutAll}
      actions={
        <>
          {me.role === 'operator' && (
            <Segments
              label={texts.whose}
              value={whose}
              options={[
                { value: 'mine', label: texts.mine },
                { value: 'everybody', label: texts.everybody },
              ]}
              choose={setWhose}
            />
          )}
          <Segments
            label={texts.range}
            value={range}
            options={RANGES.map((value) => ({ value, label: texts.ranges[value] }))}
            choose={setRange}
          />
        </>
      }
    >
      {isMine && <Quota />}
      {isMine && <Cost />}
      <OverTime range={range} filter={filterFor(me, isMine)} hourly={isMine && !served && range === 'day'} />
      <Totals key={me.role} range={range} role={me.role} filter={filterFor(me, isMine)} />
      {isMine && <LastRequests />}
      {!isMine && <PeerStatements />}
    </Page>
  );
}

/** Operators see all users' usage unless they filter; for other users the gateway applies the filter. */
function filterFor({ role, user_id: user, id }: Me, isMine: boolean): string {
  if (role !== 'operator' || !isMine) return '';
  return user === null ? `&key=${encodeURIComponent(id)}` : `&user=${encodeURIComponent(user)}`;
}
