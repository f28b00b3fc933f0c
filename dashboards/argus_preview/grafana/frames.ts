// Answers of Prometheus on their way to a panel, as in Grafana: frames, transformations, units, colours, links.
import * as grafana from '@grafana/data';
import { firstValueFrom } from 'rxjs';
// Grafana's own, under the AGPL: fetched into build/grafana by argus_preview.grafana, run, and never committed.
import { transformV2 } from './result_transformer.mjs';

// What @grafana/data exports at run time and does not type.
const api = grafana as any;

export const theme = grafana.createTheme({ colors: { mode: 'dark' } });
export const TIME_ZONE = 'utc';

export type Document = {
  dashboard: any;
  values: Record<string, string>;
  answers: Record<string, { result: any[]; error: string }>;
  start: number;
  end: number;
  folded?: boolean;
};

api.standardTransformersRegistry.setInit(() => {
  const known = new Map(Object.values(api.standardTransformers).map((one: any) => [one.id, one]));
  return [...known.values()].map((one: any) => ({
    id: one.id,
    name: one.name,
    transformation: () => Promise.resolve(one),
    editor: () => null,
    imageDark: '',
    imageLight: '',
  }));
});
api.standardFieldConfigEditorRegistry.setInit?.(() => []);

const STANDARD: Array<[string, any]> = [
  ['displayName', api.displayNameOverrideProcessor],
  ['unit', api.unitOverrideProcessor],
  ['min', api.numberOverrideProcessor],
  ['max', api.numberOverrideProcessor],
  ['decimals', api.numberOverrideProcessor],
  ['thresholds', api.thresholdsOverrideProcessor],
  ['mappings', api.valueMappingsOverrideProcessor],
  ['color', api.identityOverrideProcessor],
  ['links', api.dataLinksOverrideProcessor],
  ['noValue', api.stringOverrideProcessor],
];
const CUSTOM: Record<string, string[]> = {
  timeseries: [
    'drawStyle', 'lineInterpolation', 'lineWidth', 'lineStyle', 'fillOpacity', 'gradientMode', 'spanNulls',
    'showPoints', 'pointSize', 'stacking', 'axisPlacement', 'axisLabel', 'axisSoftMin', 'axisSoftMax',
    'axisGridShow', 'axisCenteredZero', 'axisColorMode', 'axisBorderShow', 'scaleDistribution', 'hideFrom',
    'thresholdsStyle', 'barAlignment', 'insertNulls',
  ],
  table: ['width', 'minWidth', 'align', 'cellOptions', 'hidden', 'hideFrom', 'inspect', 'filterable', 'wrapHeaderText'],
};

/** The properties that a panel's fields may have. In Grafana each panel plugin registers its own. */
function registry(type: string): any {
  const item = (id: string, path: string, process: any, isCustom: boolean) => ({
    id, path, process, isCustom, name: id, description: '', settings: {}, override: () => null, editor: () => null,
    shouldApply: (field: any) => isCustom || !['unit', 'min', 'max', 'decimals'].includes(path) || field.type !== 'time',
  });
  return new api.FieldConfigOptionsRegistry(() => [
    ...STANDARD.map(([id, process]) => item(id, id, process, false)),
    ...(CUSTOM[type] ?? []).map((path) => item(`custom.${path}`, path, api.identityOverrideProcessor, true)),
  ]);
}

function number(text: string): number {
  return text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
}

/** What Grafana's backend sends to the browser: a frame a series; without series one frame without fields. */
function sent(target: any, result: any[], step: number): any[] {
  if (result.length === 0) {
    return [{ refId: target.refId, fields: [], length: 0, meta: {} }];
  }
  return result.map((one) => {
    const points = one.values ?? [one.value];
    const legend = target.legendFormat === '__auto' ? '' : target.legendFormat.replace(
      /\{\{\s*(.+?)\s*\}\}/g, (_: string, label: string) => one.metric[label] ?? '');
    return {
      refId: target.refId,
      name: legend || undefined,
      length: points.length,
      meta: { type: one.values ? 'timeseries-multi' : 'numeric-multi', typeVersion: [0, 1],
              custom: { resultType: one.values ? 'matrix' : 'vector' } },
      fields: [
        { name: 'Time', type: 'time', config: one.values ? { interval: step * 1000 } : {},
          values: points.map((point: any) => point[0] * 1000) },
        { name: one.metric.__name__ ?? 'Value', type: 'number', labels: one.metric,
          config: legend ? { displayNameFromDS: legend } : {}, values: points.map((point: any) => number(point[1])) },
      ],
    };
  });
}

/** Replaces variables and those macros of data links that ARGUS uses; one that is unknown stays as it is. */
function replacer(values: Record<string, string>) {
  const known: Record<string, string> = { ...values, datasource: 'prometheus' };
  return (text: any, scoped?: any): any => {
    if (typeof text !== 'string') {
      return text;
    }
    return text.replace(/\$\{([^}]+)\}|\$(\w+)/g, (whole, inBraces, bare) => {
      const [name, format] = (inBraces ?? bare).split(':');
      const cell = scoped?.__dataContext?.value;
      if (name === '__value.raw' && cell?.rowIndex != null) {
        return encodeURIComponent(String(cell.field.values[cell.rowIndex] ?? ''));
      }
      if (name === '__url_time_range') {
        return 'from=now-1h&to=now';
      }
      if (!(name in known)) {
        return whole;
      }
      return format === 'queryparam' ? `var-${name}=${encodeURIComponent(known[name])}` : known[name];
    });
  };
}

function seconds(interval: string): number {
  return parseFloat(interval || '0') * (interval?.endsWith('m') ? 60 : 1);
}

/** The frames that a panel draws, and why it has none. */
export async function framesOf(panel: any, from: Document): Promise<{ data: any[]; replace: any; error: string }> {
  const step = Math.max((from.end - from.start) / (panel.maxDataPoints || 240), seconds(panel.interval));
  const answers = panel.targets.map((target: any) => from.answers[`${panel.id}/${target.refId}`]);
  const raw = panel.targets.flatMap((target: any, index: number) => sent(target, answers[index].result, step));
  const replace = replacer(from.values);
  const asked = { targets: panel.targets, app: 'dashboard' };
  const before = transformV2({ data: raw } as any, asked as any, {}).data as any[];
  const after = (await firstValueFrom(
    api.transformDataFrame(panel.transformations ?? [], before, { interpolate: replace }))) as any[];
  const data = grafana.applyFieldOverrides({
    data: after, fieldConfig: panel.fieldConfig, replaceVariables: replace, theme, timeZone: TIME_ZONE,
    fieldConfigRegistry: registry(panel.type),
  } as any);
  // Else tables are headed "Value #A", and the swatch of a legend differs from its line.
  api.cacheFieldDisplayNames(data);
  return { data, replace, error: answers.map((one: any) => one.error).join(' ') };
}
