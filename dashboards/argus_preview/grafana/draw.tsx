// One dashboard as a page: stat, table and time series by Grafana's components. The other panels are not on npm.
import 'uplot/dist/uPlot.min.css';
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import React from 'react';
import { createRoot } from 'react-dom/client';
import * as grafana from '@grafana/data';
import * as ui from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Document, TIME_ZONE, framesOf, theme } from './frames';
import { ofLegend, ofStat, ofTable } from './findings';

const api = grafana as any;
const components = ui as any;
const shown = (window as any).DOCUMENT as Document;

/** Pixels of a row of Grafana's grid, with the gap below it. */
const ROW = 38;
const GAP = 8;
const MARGIN = 10;
const WIDTH = window.innerWidth - 2 * MARGIN;

const findings: string[] = [];
const failures: string[] = [];
window.addEventListener('error', (event) => failures.push(event.message));

class Guarded extends React.Component<any, { error?: Error }> {
  state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  componentDidCatch(error: Error) {
    failures.push(`${this.props.title}: ${error.message}`);
  }

  render() {
    return this.state.error ? <pre>{String(this.state.error.stack)}</pre> : this.props.children;
  }
}

function Words({ text }: { text: string }) {
  const style: any = { height: '100%', display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center', color: theme.colors.text.secondary };
  return <div style={style}>{text}</div>;
}

function Body({ panel, data, replace, width, height }: any) {
  const range: any = { from: grafana.dateTime(shown.start * 1000), to: grafana.dateTime(shown.end * 1000), raw: { from: 'now-1h', to: 'now' } };
  const { defaults } = panel.fieldConfig;
  if (panel.type === 'stat') {
    const values = valuesOf(panel, data, replace);
    const { colorMode, graphMode, justifyMode, textMode } = panel.options;
    return (
      <components.VizRepeater width={width} height={height} getValues={() => values} source={values} renderCounter={0} autoGrid
        orientation="auto" itemSpacing={3} getAlignmentFactors={api.getDisplayValueAlignmentFactors}
        renderValue={(one: any) => (
          <components.BigValue value={one.value.display} count={values.length} width={one.width} height={one.height} theme={theme}
            colorMode={colorMode} graphMode={graphMode} justifyMode={justifyMode} textMode={textMode} alignmentFactors={one.alignmentFactors} />
        )} />
    );
  }
  const filled = data.filter((frame: any) => frame.length > 0);
  if (panel.type === 'table') {
    if (!data[0]?.fields.length) {
      return <Words text={defaults.noValue ?? 'No data'} />;
    }
    const Table = TableNG as any;
    return (
      <Table data={data[0]} width={width} height={height} sortBy={panel.options.sortBy} noHeader={!panel.options.showHeader} cellHeight={panel.options.cellHeight}
        fieldConfig={panel.fieldConfig} noValue={defaults.noValue} timeRange={range} structureRev={1} resizable
        enableVirtualization={false} getActions={() => []} />
    );
  }
  if (panel.type !== 'timeseries') {
    return <Words text={`${panel.type}: Grafana's component for it is not on npm`} />;
  }
  if (!filled.length) {
    return <Words text={defaults.noValue ?? 'No data'} />;
  }
  // As its panel does: else lines bridge gaps.
  const frames = filled.map((frame: any) => api.applyNullInsertThreshold({ frame, refFieldName: 'Time' }));
  return (
    <components.TimeSeries width={width} height={height} frames={frames} timeRange={range} timeZone={TIME_ZONE}
      legend={panel.options.legend} options={panel.options} structureRev={1}>{() => null}</components.TimeSeries>
  );
}

function valuesOf(panel: any, data: any[], replace: any): any[] {
  return grafana.getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: replace, theme, data,
    sparkline: false, timeZone: TIME_ZONE,
  });
}

async function drawn(panel: any): Promise<any> {
  const { x, y, w, h } = panel.gridPos;
  const box: any = { position: 'absolute', left: MARGIN + (x * WIDTH) / 24, top: y * ROW + GAP, width: (w * WIDTH) / 24 - GAP, height: h * ROW - GAP };
  if (panel.type === 'row') {
    return <div key={panel.id} style={{ ...box, fontSize: 16, fontWeight: 500 }}>{panel.collapsed ? '›' : '⌄'} {title(panel)}</div>;
  }
  const { data, replace, error } = await framesOf(panel, shown);
  if (error.trim()) {
    failures.push(`${panel.title}: ${error}`);
  }
  findings.push(...(panel.type === 'stat' ? ofStat(panel, data, valuesOf(panel, data, replace)) : panel.type === 'table' ? ofTable(panel, data) : []));
  after.push(() => {
    const place = document.getElementById(`panel${panel.id}`);
    return panel.type === 'timeseries' && place ? ofLegend(panel, data, place) : [];
  });
  return (
    <div key={panel.id} id={`panel${panel.id}`} style={box}>
      <Guarded title={panel.title}>
        <components.PanelChrome title={replace(panel.title)} description={panel.description} width={box.width} height={box.height} padding={panel.type === 'table' ? 'none' : 'md'}>
          {(width: number, height: number) => <Guarded title={panel.title}><Body {...{ panel, data, replace, width, height }} /></Guarded>}
        </components.PanelChrome>
      </Guarded>
    </div>
  );
}

function title(panel: any): string {
  return panel.title.replace(/\$(\w+)/g, (_: string, name: string) => shown.values[name] ?? name);
}

const after: Array<() => string[]> = [];

/** Until the page has been the same for a second: legends are measured after they are drawn. */
async function rest(): Promise<void> {
  let before = '';
  for (let same = 0; same < 10; ) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const now = document.body.innerHTML;
    same = now === before ? same + 1 : 0;
    before = now;
  }
}

/** All panels; or those that are seen when the dashboard is opened, moved up to where they then are. */
function panelsOf(all: any[]): any[] {
  if (!shown.folded) {
    return all.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  }
  let up = 0;
  return all.map((panel) => {
    const { y, h } = panel.gridPos;
    const moved = { ...panel, gridPos: { ...panel.gridPos, y: y - up } };
    up += Math.max(y + h, ...(panel.panels ?? []).map((one: any) => one.gridPos.y + one.gridPos.h)) - (y + h);
    return moved;
  });
}

async function main(): Promise<void> {
  const panels = panelsOf(shown.dashboard.panels);
  const boxes = await Promise.all(panels.map(drawn));
  const height = Math.max(...panels.map((panel) => panel.gridPos.y + panel.gridPos.h)) * ROW;
  createRoot(document.getElementById('root')!).render(
    <api.ThemeContext.Provider value={theme}>
      <components.GlobalStyles /><components.PortalContainer />
      <div id="grid" style={{ height, position: 'relative', background: theme.colors.background.canvas, color: theme.colors.text.primary }}>{boxes}</div>
    </api.ThemeContext.Provider>
  );
  await rest();
  findings.push(...after.flatMap((check) => check()));
}

main()
  .catch((error) => failures.push(String(error.stack)))
  .finally(() => {
    document.body.dataset.findings = JSON.stringify(findings);
    document.body.dataset.failures = failures.join('; ');
  });
