// The Function App on the Flex Consumption plan.
param name string
param planName string
param location string
param tags object

@description('Resource id of the app\'s identity.')
param identityId string

@description('Where the deployed package lies.')
param deploymentContainerUrl string

@description('The subnet that outgoing traffic takes; empty = none.')
param subnetId string

param instanceMemoryMB int
param maximumInstanceCount int

@description('Requests that one instance answers at once.')
param httpPerInstanceConcurrency int

param alwaysReadyHttp int
param alwaysReadyDurable int

@description('The Log Analytics workspace that keeps the logs of the host.')
param workspaceId string

@description('All of the app\'s settings, from settings.bicep.')
param appSettings object

var scaleGroups = [
  { name: 'http', instanceCount: alwaysReadyHttp }
  { name: 'durable', instanceCount: alwaysReadyDurable }
]

var alwaysReady = filter(scaleGroups, group => group.instanceCount > 0)

var flexConfig = {
  deployment: {
    storage: {
      type: 'blobContainer'
      value: deploymentContainerUrl
      authentication: {
        type: 'UserAssignedIdentity'
        userAssignedIdentityResourceId: identityId
      }
    }
  }
  runtime: {
    name: 'python'
    version: '3.13'
  }
  scaleAndConcurrency: {
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReady: alwaysReady
    triggers: {
      http: {
        perInstanceConcurrency: httpPerInstanceConcurrency
      }
    }
  }
}

resource serverfarm 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
  }
}

resource app 'Microsoft.Web/sites@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: serverfarm.id
    httpsOnly: true
    // As whom `@Microsoft.KeyVault(...)` in a setting is read.
    keyVaultReferenceIdentity: identityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
    }
    functionAppConfig: flexConfig
  }

  // The package is deployed by a role: no publishing password opens the site or its files.
  resource publishing 'basicPublishingCredentialsPolicies' = [
    for name in ['scm', 'ftp']: {
      name: name
      properties: { allow: false }
    }
  ]

  resource settings 'config' = {
    name: 'appsettings'
    properties: appSettings
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: app
  properties: {
    workspaceId: workspaceId
    // What the host says, also when Application Insights does not get it.
    logs: [{ category: 'FunctionAppLogs', enabled: true }]
  }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
