// What must hold of what was drawn: no colour that judges without data, no link to nothing, the worst series named.
import * as grafana from '@grafana/data';
import { theme } from './frames';

const JUDGING = ['green', 'yellow', 'orange', 'red', 'dark-red'].map((name) => theme.visualization.getColorByName(name));

function numbers(data: any[]): any[] {
  return data.flatMap((frame) => frame.fields.filter((field: any) => field.type === 'number').map((field: any) => ({ field, frame })));
}

/** A number that is not there is neither good nor bad. */
export function ofStat(panel: any, data: any[], shown: any[]): string[] {
  const there = numbers(data).some(({ field }) => field.values.some((value: any) => Number.isFinite(value)));
  return there ? [] : shown.filter((one) => JUDGING.includes(one.display.color))
    .map((one) => `${panel.title}: "${one.display.text}" without data is ${one.display.color}`);
}

/** Each link has something to lead to, and no variable that nobody filled in; an empty cell does not judge. */
export function ofTable(panel: any, data: any[]): string[] {
  const found = new Set<string>();
  for (const { field, frame } of numbers(data)) {
    const empty = field.values.some((value: any) => !Number.isFinite(value)) ? field.display?.(null) : undefined;
    if (field.config.custom?.cellOptions?.type?.startsWith('color') && JUDGING.includes(empty?.color)) {
      found.add(`${panel.title}: an empty cell of ${grafana.getFieldDisplayName(field, frame, data)} is ${empty.color}`);
    }
  }
  for (const frame of data) {
    for (const field of frame.fields.filter((one: any) => one.config.links?.length)) {
      const name = grafana.getFieldDisplayName(field, frame, data);
      for (let row = 0; row < frame.length; row++) {
        const href = field.getLinks({ valueRowIndex: row })[0].href;
        if ([null, undefined, ''].includes(field.values[row])) {
          found.add(`${panel.title}: an empty cell of ${name} is a link to ${href}`);
        }
        if (href.includes('$')) {
          found.add(`${panel.title}: ${name} links to ${href}`);
        }
      }
    }
  }
  return [...found];
}

const REDUCERS: Record<string, (values: number[]) => number> = {
  'Last *': (values) => values[values.length - 1],
  Max: (values) => Math.max(...values),
  Min: (values) => Math.min(...values),
  Mean: (values) => values.reduce((sum, value) => sum + value, 0) / values.length,
};

/** Whoever the legend is sorted by stands in the part of it that can be seen. */
export function ofLegend(panel: any, data: any[], box: Element): string[] {
  const series = numbers(data);
  const { sortBy, sortDesc } = panel.options.legend;
  if (series.length < 2) {
    return [];
  }
  if (!(sortBy in REDUCERS)) {
    return [`${panel.title}: its legend is sorted by nothing`];
  }
  const height = ({ field }: any) => {
    const finite = field.values.filter((value: any) => Number.isFinite(value));
    return finite.length ? REDUCERS[sortBy](finite) * (sortDesc ? 1 : -1) : -Infinity;
  };
  const worst = Math.max(...series.map(height));
  const names = series.filter((one) => height(one) === worst).map((one) => grafana.getFieldDisplayName(one.field, one.frame, data).trim());
  const legend = box.querySelector('[data-testid="data-testid viz-layout-legend"]');
  const bottom = legend?.getBoundingClientRect().bottom ?? 0;
  const seen = [...(legend?.querySelectorAll('tbody button') ?? [])]
    .filter((name) => name.getBoundingClientRect().bottom <= bottom)
    .map((name) => name.textContent!.trim());
  return names.some((name) => seen.includes(name)) ? [] : [`${panel.title}: its legend shows ${seen.join(', ') || 'nobody'} and not ${names[0]}`];
}
