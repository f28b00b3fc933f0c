// Stands in for @grafana/runtime, of which the AGPL file asks one function, for trace links that ARGUS has none of.
export const getDataSourceSrv = () => ({ getInstanceSettings: () => undefined });
