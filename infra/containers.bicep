// The same app as main.bicep, as a container on Container Apps. See docs/deploying.md, "Containers".
targetScope = 'subscription'

@minLength(1)
@maxLength(64)
@description('Name of the environment; the names of all resources come from it.')
param environmentName string

@minLength(1)
@description('Region of every resource; it must offer Container Apps.')
param location string

@description('In the registry that this makes, as name:tag; empty = no app yet, so that the image can be pushed first.')
param image string = ''

@allowed(['storage', 'scheduler'])
// Whether a scheduler runs the entities of a Python app, which this app needs, is not known: docs/deploying.md.
@description('Where orchestrations are kept: the storage account, or a Durable Task Scheduler, on which this app has not been run.')
param durableBackend string = 'storage'

@minValue(0)
@maxValue(3)
@description('Capacity units of a scheduler on its Dedicated plan; 0 = the Consumption plan. See docs/sizing.md.')
param schedulerUnits int = 0

@minValue(1)
@maxValue(1000)
@description('The fewest instances. The platform adds none for orchestrations on Azure Storage: there this is their number.')
param minReplicas int = 1

@minValue(1)
@maxValue(1000)
@description('The most instances.')
param maxReplicas int = 10

@description('Whether a virtual network is made, storage is reached through private endpoints in it, and not otherwise.')
param privateNetwork bool = false

@description('Addresses of that network, a /23 or wider.')
param addressPrefix string = '10.0.0.0/16'

@allowed(['applicationInsights', 'openTelemetry'])
@description('How the host sends its telemetry; with openTelemetry it is one trace with the app\'s.')
param hostTelemetry string = 'applicationInsights'

@description('Where OTLP over HTTP is received, beside Application Insights; empty = nowhere.')
param otlpEndpoint string = ''

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
@description('How the storage account is copied. Not every region has zones, as ZRS needs them.')
param storageSku string = 'Standard_ZRS'

@minValue(30)
@maxValue(730)
@description('Days that logs and telemetry are kept.')
param logRetentionDays int = 30

@description('App settings of your own: those of docs/settings.md, and what dependencies.toml takes by "\${NAME}".')
param appSettings object = {}

@description('Settings whose values are secrets in Key Vault: the setting\'s name, and the secret\'s address.')
param secretSettings object = {}

var token = toLower(uniqueString(subscription().id, environmentName, location))
var tags = { environment: environmentName }

// Without it every instance is a host of its own, with its own function keys and its own runs of each timer.
var hostSettings = { AzureFunctionsWebHost__hostid: 'dr-${token}' }

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identity 'modules/identity.bicep' = {
  name: 'identity'
  scope: group
  params: {
    name: 'id-${token}'
    location: location
    tags: tags
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  scope: group
  params: {
    name: 'st${token}'
    location: location
    tags: tags
    sku: storageSku
    principalId: identity.outputs.principalId
    isPrivate: privateNetwork
    contentAccountName: ''
  }
}

module network 'modules/network.bicep' = if (privateNetwork) {
  name: 'network'
  scope: group
  params: {
    name: 'vnet-${token}'
    location: location
    tags: tags
    addressPrefix: addressPrefix
    delegation: 'Microsoft.App/environments'
    storageId: storage.outputs.id
    contentId: ''
  }
}

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring'
  scope: group
  params: {
    workspaceName: 'log-${token}'
    insightsName: 'appi-${token}'
    location: location
    tags: tags
    retentionDays: logRetentionDays
    principalId: identity.outputs.principalId
  }
}

module scheduler 'modules/scheduler.bicep' = if (durableBackend == 'scheduler') {
  name: 'scheduler'
  scope: group
  params: {
    name: 'dts-${token}'
    location: location
    tags: tags
    principalId: identity.outputs.principalId
    units: schedulerUnits
  }
}

module settings 'modules/settings.bicep' = {
  name: 'settings'
  scope: group
  params: {
    storageAccountName: storage.outputs.name
    identityClientId: identity.outputs.clientId
    insightsConnectionString: monitoring.outputs.connectionString
    schedulerEndpoint: durableBackend == 'scheduler' ? scheduler!.outputs.endpoint : ''
    hostTelemetry: hostTelemetry
    otlpEndpoint: otlpEndpoint
    appSettings: union(appSettings, hostSettings)
  }
}

module container 'modules/container.bicep' = {
  name: 'container'
  scope: group
  params: {
    name: 'ca-${token}'
    environmentName: 'cae-${token}'
    registryName: 'cr${token}'
    workspaceName: monitoring.outputs.workspaceName
    location: location
    tags: tags
    identityId: identity.outputs.id
    principalId: identity.outputs.principalId
    image: image
    subnetId: privateNetwork ? network!.outputs.appSubnetId : ''
    minReplicas: minReplicas
    maxReplicas: maxReplicas
    appSettings: settings.outputs.settings
    secretSettings: secretSettings
  }
}

output AZURE_RESOURCE_GROUP string = group.name
output REGISTRY_NAME string = container.outputs.registry
output APP_URL string = container.outputs.url
