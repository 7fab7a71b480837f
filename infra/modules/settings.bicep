// The app settings; it creates nothing. docs/settings.md names each setting.
param storageAccountName string

@description('Of the app\'s identity.')
param identityClientId string

param insightsConnectionString string

@description('Of the Durable Task Scheduler; empty: the storage account keeps the orchestrations.')
param schedulerEndpoint string

@allowed(['applicationInsights', 'openTelemetry'])
param hostTelemetry string

@description('Where OTLP over HTTP is received, by the app and by a host that uses OpenTelemetry; empty = nowhere.')
param otlpEndpoint string

@description('The app\'s own settings. They win over none of those below.')
param appSettings object

// The host and the app read the same settings: docs/settings.md, "Storage by an identity".
var storageSettings = {
  AzureWebJobsStorage__accountName: storageAccountName
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identityClientId
}

var monitoringSettings = {
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
}

// Both together, so that the app's spans are children of the host's: docs/observability.md.
var openTelemetrySettings = hostTelemetry == 'applicationInsights' ? {} : {
  AzureFunctionsJobHost__telemetryMode: 'OpenTelemetry'
  PYTHON_ENABLE_OPENTELEMETRY: 'true'
}

var otlpSettings = empty(otlpEndpoint) ? {} : {
  OTEL_EXPORTER_OTLP_ENDPOINT: otlpEndpoint
}

// Over host.json, which names Azure Storage. The scale controller reads host.json alone: docs/deploying.md.
var schedulerSettings = empty(schedulerEndpoint) ? {} : {
  DURABLE_TASK_SCHEDULER_CONNECTION_STRING: 'Endpoint=${schedulerEndpoint};Authentication=ManagedIdentity;ClientID=${identityClientId}'
  AzureFunctionsJobHost__extensions__durableTask__storageProvider__type: 'azureManaged'
  AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName: 'DURABLE_TASK_SCHEDULER_CONNECTION_STRING'
}

output settings object = union(
  appSettings,
  storageSettings,
  monitoringSettings,
  openTelemetrySettings,
  otlpSettings,
  schedulerSettings
)
